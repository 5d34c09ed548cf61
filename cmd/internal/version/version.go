// Package version describes the build of the program, in the format of kubectl version.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// What hack/release sets with -ldflags, because a released binary is built without the repository's metadata. Empty in other builds.
var version, revision, treeState, date string

// Info describes a build.
type Info struct {
	// GitVersion is the version of the release, or of the module: a tag, or a pseudo-version of the commit.
	GitVersion string `json:"gitVersion"`
	// GitCommit, GitTreeState (clean or dirty) and BuildDate describe the commit of the build. They are empty if the build does not
	// record them.
	GitCommit    string `json:"gitCommit,omitempty"`
	GitTreeState string `json:"gitTreeState,omitempty"`
	BuildDate    string `json:"buildDate,omitempty"`
	GoVersion    string `json:"goVersion"`
	Compiler     string `json:"compiler"`
	Platform     string `json:"platform"`
}

// Get returns the build of this program.
func Get() Info {
	info := built()
	info.GitVersion, info.GitCommit = cmp.Or(version, info.GitVersion), cmp.Or(revision, info.GitCommit)
	info.GitTreeState, info.BuildDate = cmp.Or(treeState, info.GitTreeState), cmp.Or(date, info.BuildDate)
	return info
}

// built returns what the go command recorded in this program.
func built() Info {
	info := Info{
		GitVersion: "unknown", GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	if build.Main.Version != "" {
		info.GitVersion = build.Main.Version
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.time":
			info.BuildDate = s.Value
		case "vcs.modified":
			info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	return info
}
