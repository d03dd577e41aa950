// Package config turns files, environment and flags into one validated value.
//
// Load reads, from the weakest to the strongest: the defaults written beside each field,
// /etc/troupe/config.yaml, the user's file below XDG_CONFIG_HOME, the file .troupe/config.yaml of
// the folder at work, OPENAI_API_KEY and OPENAI_BASE_URL, the variables that begin with TROUPE_,
// and flags. Every value keeps its origin, so that an error or `troupe config show --origin` can
// say where it came from.
//
// Files are read strictly: an unknown key, a wrong type or a value out of range is a Problem with
// file, line, column, a marked excerpt and what to do. Viper decides the precedence of the
// settings with a fixed name; what lies below a map key (a model called gpt-4.1-mini) never
// passes through it, because it folds case and splits at dots.
//
// A folder's own file is hostile until the folder is trusted: only settings marked as harmless
// are taken from it, the rest is refused with a Warning. See project.go.
//
// The package reads no globals: environment, files and flags are parameters.
package config
