// Package lookup finds ready-made programs of a local control plane, and downloads released ones, so that they need not be built.
package lookup

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// The programs that can be found, as their files are called.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Kubectl           = "kubectl"
	Helm              = "helm"
)

// The environment variables that say where to look.
const (
	// AssetsVariable names a folder with programs, as controller-runtime's envtest has it.
	AssetsVariable = "KUBEBUILDER_ASSETS"
	// DownloadVariable is "0" to download nothing, or "1" to fail if a missing program cannot be downloaded.
	DownloadVariable = "DOWNLOAD"
	// MirrorVariable is the URL of a mirror of the release sites; the first element of its paths is the name of the site.
	MirrorVariable = "SALLYPORT_DOWNLOADS"
)

// Options are the versions that a Finder looks for, and its folders.
type Options struct {
	// Kubernetes, Etcd and Helm are the versions that are downloaded, such as v1.2.3. Other programs are compared with them.
	Kubernetes, Etcd, Helm string
	// Built is a folder with programs of these versions that were built earlier.
	Built string
	// Downloads is the folder of downloaded programs.
	Downloads string
	// PATH says whether kubectl and helm are looked for in PATH, where their versions may differ from these.
	PATH bool
	// Logf is told what was found where, and what was skipped and why. It may be nil.
	Logf func(format string, args ...any)
}

// Finder finds programs. It is not safe for concurrent use; several Finders and processes may share the folders.
type Finder struct {
	Options

	pins    string // checksums that need not be asked for: lines of sha256sum with URLs as names
	client  *http.Client
	reached map[string]error // by site, the outcome of the first request
	limits  limits
}

// limits are the times that a Finder waits.
type limits struct {
	version time.Duration // for a program to say its version; reading a large one from a slow disk takes seconds
	reach   time.Duration // for a site to answer its first request
	stall   time.Duration // for the next byte of a download
	report  time.Duration // from one message about the progress of a download to the next
}

// New returns a Finder.
func New(o Options) *Finder {
	return &Finder{
		Options: o,
		pins:    pins,
		client:  newClient(http.ProxyFromEnvironment),
		reached: map[string]error{},
		limits:  limits{version: 10 * time.Second, reach: 2 * time.Second, stall: 30 * time.Second, report: 15 * time.Second},
	}
}

func (f *Finder) say(format string, args ...any) {
	if f.Logf != nil {
		f.Logf(format, args...)
	}
}

// Find returns the path of a program and the place where it was found. If the path is empty, the program has to be built.
//
// It looks into the folder KUBEBUILDER_ASSETS, where it takes any version; the folders of Options; the store of
// setup-envtest; for kubectl and helm into PATH; and then it downloads the release. It is an error if DOWNLOAD=1 and the
// download fails, or if there is no room on the disk, which a build would need too.
func (f *Finder) Find(ctx context.Context, program string) (path, where string, err error) {
	if given := os.Getenv(AssetsVariable); given != "" {
		// Absolute, since the components do not run in this working directory.
		dir, err := filepath.Abs(given)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", AssetsVariable, err)
		}
		if path := filepath.Join(dir, program); IsFile(path) {
			return path, AssetsVariable + " (" + dir + ")", nil
		}
	}
	if path := filepath.Join(f.Built, program); IsFile(path) {
		return path, f.Built, nil
	}
	if path := f.downloaded(program); IsFile(path) {
		return path, filepath.Dir(path), nil
	}
	if path := f.inStore(ctx, program); path != "" {
		return path, "the store of setup-envtest (" + filepath.Dir(path) + ")", nil
	}
	if path := f.inPath(ctx, program); path != "" {
		return path, "PATH (" + filepath.Dir(path) + ")", nil
	}
	path, err = f.mayDownload(ctx, program)
	return path, filepath.Dir(f.downloaded(program)), err
}

// IsFile reports whether there is a file at a path.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
