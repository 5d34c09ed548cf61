// Package version tells which build a program is, in the words of kubectl version.
package version

import (
	"runtime"
	"runtime/debug"
)

// Info is one build.
type Info struct {
	// GitVersion is the version of the module: that of a tag, or one made of the commit.
	GitVersion string `json:"gitVersion"`
	// GitCommit and GitTreeState (clean or dirty) are what it was built from, and BuildDate is when that was committed; empty if the
	// build does not say.
	GitCommit    string `json:"gitCommit,omitempty"`
	GitTreeState string `json:"gitTreeState,omitempty"`
	BuildDate    string `json:"buildDate,omitempty"`
	GoVersion    string `json:"goVersion"`
	Compiler     string `json:"compiler"`
	Platform     string `json:"platform"`
}

// Get gives that of this program.
func Get() Info {
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
