// epoll(7), eventfd(2) and accept4(2), which the Swift overlay of glibc leaves out.
#pragma once

#include <stdint.h>

// A new epoll instance, closed on exec.
int sync_epoll_create(void);

// Adds (operation 0), changes (1) or removes (2) `fd`. `token` comes back with its events.
int sync_epoll_control(int epoll, int operation, int fd, uint32_t events, uint64_t token);

// Waits for at most `milliseconds` (-1: for ever), and writes up to `capacity`, at most 256, events and their tokens.
int sync_epoll_wait(int epoll, uint32_t *events, uint64_t *tokens, int capacity, int milliseconds);

// A counter that can be waited for: non-blocking, closed on exec.
int sync_event_descriptor(void);

// A TCP socket of `family`: non-blocking, closed on exec.
int sync_tcp_socket(int family);

// The next connection that waits at `listener`: non-blocking, closed on exec. `address` has room for `*count` bytes.
int sync_accept(int listener, void *address, uint32_t *count);

// A socket that becomes readable when an address or a link of this network namespace comes, goes or changes (rtnetlink(7)):
// non-blocking, closed on exec. -1 where that is not permitted.
int sync_network_watch(void);

// Takes what is waiting at such a socket. What it says is looked up otherwise.
void sync_network_drain(int fd);

// The flag of an interface whose link carries (netdevice(7)).
enum { sync_link_running = 0x40 };

enum { sync_epoll_in = 1, sync_epoll_out = 4, sync_epoll_error = 8, sync_epoll_hang_up = 16 };
