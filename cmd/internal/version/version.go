// Package version describes the build of the program, in the format of kubectl version.
package version

import (
	"runtime"
	"runtime/debug"
)

// Info describes a build.
type Info struct {
	// GitVersion is the version of the module: a tag, or a pseudo-version of the commit.
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
