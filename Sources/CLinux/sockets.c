#define _GNU_SOURCE
#include "CLinuxSockets.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert((int)EPOLLIN == (int)sync_epoll_in && (int)EPOLLOUT == (int)sync_epoll_out, "bits of epoll");
_Static_assert((int)IFF_RUNNING == (int)sync_link_running, "flag of a link");
_Static_assert((int)EPOLLERR == (int)sync_epoll_error && (int)EPOLLHUP == (int)sync_epoll_hang_up, "bits of epoll");

int sync_epoll_create(void) { return epoll_create1(EPOLL_CLOEXEC); }

int sync_epoll_control(int epoll, int operation, int fd, uint32_t events, uint64_t token) {
  static const int operations[] = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
  struct epoll_event event = {.events = events, .data.u64 = token};
  return epoll_ctl(epoll, operations[operation], fd, &event);
}

int sync_epoll_wait(int epoll, uint32_t *events, uint64_t *tokens, int capacity, int milliseconds) {
  struct epoll_event list[256];
  int count = epoll_wait(epoll, list, capacity < 256 ? capacity : 256, milliseconds);
  for (int i = 0; i < count; i++) {
    events[i] = list[i].events;
    tokens[i] = list[i].data.u64;
  }
  return count;
}

int sync_event_descriptor(void) { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); }

int sync_stream_socket(int family) {
  return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int sync_accept(int listener, void *address, uint32_t *count) {
  return accept4(listener, address, count, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

int sync_network_watch(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return -1;
  struct sockaddr_nl address = {
      .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
  if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  int code = errno;
  close(fd);
  errno = code;
  return -1;
}

void sync_network_drain(int fd) {
  char bytes[8192];
  // ENOBUFS means that messages were lost: others are still to be read.
  for (int i = 0; i < 1024; i++) {
    if (recv(fd, bytes, sizeof bytes, 0) < 0 && errno != ENOBUFS && errno != EINTR) return;
  }
}
