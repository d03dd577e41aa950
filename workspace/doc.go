// Package workspace holds where agents work: the addresses of workspaces, the confinement of
// file access below one folder, and the list of folders that a person trusts.
//
// A Workspace is the only way in which tools reach files. It takes path text as a model wrote
// it, and never gives a path of the machine back to a tool. What it holds to:
//
//   - W1: nothing outside the root is read, written, created or removed, whatever links,
//     dot-dots, absolute names or concurrent renames say.
//   - W2: `.troupe` is invisible and untouchable, `.git` is never written; names are compared
//     without case and without trailing dots and spaces, after links were followed too.
//   - W3: only regular files are opened, without ever waiting for a peer (FIFOs, devices).
//   - W4: a file is replaced as a whole by a rename in its own directory, so that a reader sees
//     the old or the new content and another hard link to the old content keeps it.
//   - W5: a file with more than one hard link is refused while the workspace is Restricted:
//     the other name may lie outside.
package workspace
