#pragma once

#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

// Swift imports neither variadic functions nor the streams of stdio.

// Text is UTF-8 in any environment. Call it before threads begin.
static inline void sync_edit_use_utf8(void) {
  if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "");
}

// An editor that reads `input` and writes to `output`; null without memory.
static inline EditLine *sync_edit_open(const char *name, int input, int output) {
  FILE *in = fdopen(dup(input), "r");
  FILE *out = fdopen(dup(output), "w");
  if (!in || !out) return 0;
  EditLine *editor = el_init_fd(name, in, out, out, input, output, output);
  if (editor) el_set(editor, EL_EDITOR, "emacs");
  return editor;
}

static inline void sync_edit_set_client(EditLine *editor, void *client) {
  el_set(editor, EL_CLIENTDATA, client);
}

static inline void *sync_edit_client(EditLine *editor) {
  void *client = 0;
  el_get(editor, EL_CLIENTDATA, &client);
  return client;
}

// What is between two `sync_edit_escape` in a prompt takes no columns.
enum { sync_edit_escape = 1 };
static inline void sync_edit_set_prompt(EditLine *editor, char *(*prompt)(EditLine *)) {
  el_set(editor, EL_PROMPT_ESC, prompt, sync_edit_escape);
}

static inline void sync_edit_set_reader(EditLine *editor, int (*reader)(EditLine *, wchar_t *)) {
  el_set(editor, EL_GETCFN, reader);
}

static inline void sync_edit_set_completion(
    EditLine *editor, unsigned char (*complete)(EditLine *, int)) {
  el_set(editor, EL_ADDFN, "sync-complete", "complete the word", complete);
  el_set(editor, EL_BIND, "^I", "sync-complete", (char *)0);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", (char *)0);
}

static inline void sync_edit_set_history(EditLine *editor, History *lines, int most) {
  HistEvent event;
  history(lines, &event, H_SETSIZE, most);
  history(lines, &event, H_SETUNIQUE, 1);
  el_set(editor, EL_HIST, history, lines);
}

static inline void sync_edit_remember(History *lines, const char *line) {
  HistEvent event;
  history(lines, &event, H_ENTER, line);
}

// Gives the terminal back to the program's caller (0), or takes it again (1).
static inline void sync_edit_prepare(EditLine *editor, int prepare) {
  el_set(editor, EL_PREP_TERM, prepare);
}

// Bytes that the terminal has ready to read.
static inline int sync_edit_waiting(int input) {
  int count = 0;
  return ioctl(input, FIONREAD, &count) ? 0 : count;
}

static inline void sync_edit_refresh(EditLine *editor) { el_set(editor, EL_REFRESH); }
