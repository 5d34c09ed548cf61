package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// assetsVariable names a folder with ready-made binaries, as controller-runtime's envtest has it.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Assets are the paths of a control plane's programs.
type Assets struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Kubectl           string
}

// Binaries returns the programs of a control plane and builds those that are missing.
//
// What lies in the folder KUBEBUILDER_ASSETS, if that is set, is taken as it is, whatever its version. The rest comes
// from a folder below os.UserCacheDir() that belongs to the Kubernetes version and the build list; building all of it
// takes some minutes, once. Several processes may ask at the same time: one builds, the others wait for it. What was found
// where, and the progress of a build, goes to logf, which may be nil.
func Binaries(ctx context.Context, logf func(format string, args ...any)) (Assets, error) {
	return binaries(ctx, logf, controlPlanePrograms)
}

func binaries(ctx context.Context, logf func(string, ...any), wanted []program) (Assets, error) {
	paths, err := resolve(ctx, current, logf, wanted)
	return Assets{
		Etcd: paths[Etcd], APIServer: paths[APIServer], ControllerManager: paths[ControllerManager], Kubectl: paths[Kubectl],
	}, err
}

// Build builds what is missing of the control plane's programs and Helm, in one go.
func Build(ctx context.Context, logf func(format string, args ...any)) error {
	_, err := resolve(ctx, current, logf, append([]program{helmProgram}, controlPlanePrograms...))
	return err
}

// Helm returns the path of the Helm program and builds it if it is missing, as Binaries does with a control plane's.
func Helm(ctx context.Context, logf func(format string, args ...any)) (path string, err error) {
	paths, err := resolve(ctx, current, logf, []program{helmProgram})
	return paths[helmName], err
}

// OldAPIServer returns the path of the API server of an older Kubernetes, OldKubernetesVersion, for Options.APIServer. It is
// built with the dependencies that it was released with. If it is missing and build is false, the path is empty.
func OldAPIServer(ctx context.Context, logf func(format string, args ...any), build bool) (path string, err error) {
	b, err := newBuilder(old, logf)
	if err != nil {
		return "", err
	}
	if build {
		err = b.ensure(ctx, []program{apiServerProgram})
	}
	return b.cached(apiServerProgram), err
}

// resolve returns the paths of programs by their names. Those that find does not find are built.
func resolve(ctx context.Context, g graph, logf func(string, ...any), wanted []program) (map[string]string, error) {
	b, err := newBuilder(g, logf)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	var missing []program
	var places []string
	found := map[string][]string{}
	for _, p := range wanted {
		path, where, err := b.find(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", p.name, err)
		}
		if path == "" {
			missing = append(missing, p)
			continue
		}
		paths[p.name] = path
		if found[where] == nil {
			places = append(places, where)
		}
		found[where] = append(found[where], p.name)
	}
	for _, where := range places {
		b.say("found in %s: %s", where, strings.Join(found[where], ", "))
	}
	if err := b.ensure(ctx, missing); err != nil {
		return nil, err
	}
	for _, p := range missing {
		paths[p.name] = b.path(p)
	}
	return paths, nil
}

// find looks for a program that need not be built. It returns its path, which is empty if there is none, and what to call the place.
func (b *builder) find(_ context.Context, p program) (path, where string, err error) {
	if given := os.Getenv(assetsVariable); given != "" {
		// Absolute, since the components do not run in this working directory.
		dir, err := filepath.Abs(given)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", assetsVariable, err)
		}
		if path := filepath.Join(dir, p.name); isFile(path) {
			return path, assetsVariable + " (" + dir + ")", nil
		}
	}
	return b.cached(p), b.dir, nil
}

// cached returns the path of a program in the cache, which is empty if it is not there.
func (b *builder) cached(p program) string {
	if path := b.path(p); isFile(path) {
		return path
	}
	return ""
}

// path returns where in the cache a program belongs.
func (b *builder) path(p program) string { return filepath.Join(b.dir, p.name) }

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
