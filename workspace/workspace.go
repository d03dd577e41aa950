package workspace

// Workspace is a stub that the confinement replaces.
type Workspace struct{}
