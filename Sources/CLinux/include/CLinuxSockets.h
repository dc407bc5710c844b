// epoll(7), eventfd(2) and accept4(2), which the Swift overlay of glibc leaves out.
#pragma once

#include <stdint.h>

// A new epoll instance, close-on-exec.
int sync_epoll_create(void);

// Adds (operation 0), changes (1) or removes (2) `fd`. `token` comes back with its events.
int sync_epoll_control(int epoll, int operation, int fd, uint32_t events, uint64_t token);

// Waits for at most `milliseconds` (-1: without limit), and writes up to `capacity`, at most 256, events and
// their tokens.
int sync_epoll_wait(int epoll, uint32_t *events, uint64_t *tokens, int capacity, int milliseconds);

// An eventfd: non-blocking, close-on-exec.
int sync_event_descriptor(void);

// A stream socket of `family`, TCP or Unix: non-blocking, close-on-exec.
int sync_stream_socket(int family);

// Accepts the next connection of `listener`: non-blocking, close-on-exec. `address` has room for `*count`
// bytes.
int sync_accept(int listener, void *address, uint32_t *count);

// A socket that becomes readable when an address or a link of this network namespace is added, removed or
// changed (rtnetlink(7)): non-blocking, close-on-exec. -1 where that is not permitted.
int sync_network_watch(void);

// Discards the pending messages of such a socket: the state is queried separately.
void sync_network_drain(int fd);

// The flag of an interface whose link is up (netdevice(7), IFF_RUNNING).
enum { sync_link_running = 0x40 };

enum { sync_epoll_in = 1, sync_epoll_out = 4, sync_epoll_error = 8, sync_epoll_hang_up = 16 };
