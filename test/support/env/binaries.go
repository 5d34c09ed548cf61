package env

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/test/support/env/lookup"
)

// Assets are the paths of a control plane's programs.
type Assets struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Kubectl           string
}

// Binaries returns the programs of a control plane and builds those that are missing.
//
// Package lookup says where they are looked for first. What is built goes to a folder below os.UserCacheDir() that belongs to
// the Kubernetes version and the build list; building all of it takes some minutes, once. Several processes may ask at the
// same time: one builds, the others wait for it. What was found where, and the progress of a download or build, goes to logf,
// which may be nil.
func Binaries(ctx context.Context, logf func(format string, args ...any)) (Assets, error) {
	return binaries(ctx, logf, controlPlanePrograms)
}

func binaries(ctx context.Context, logf func(string, ...any), wanted []program) (Assets, error) {
	paths, err := resolve(ctx, logf, wanted, !testing.Testing())
	return Assets{
		Etcd: paths[Etcd], APIServer: paths[APIServer], ControllerManager: paths[ControllerManager], Kubectl: paths[Kubectl],
	}, err
}

// Build builds what the tests miss of the control plane's programs and Helm, in one go.
func Build(ctx context.Context, logf func(format string, args ...any)) error {
	_, err := resolve(ctx, logf, append([]program{helmProgram}, controlPlanePrograms...), false)
	return err
}

// Checksums returns the content of lookup/sha256.txt for the present versions, as the release sites publish it.
func Checksums(ctx context.Context) (string, error) {
	b, err := newBuilder(current, nil)
	if err != nil {
		return "", err
	}
	return b.finder(false).Checksums(ctx)
}

// Helm returns the path of the Helm program and builds it if it is missing, as Binaries does with a control plane's.
func Helm(ctx context.Context, logf func(format string, args ...any)) (path string, err error) {
	paths, err := resolve(ctx, logf, []program{helmProgram}, !testing.Testing())
	return paths[helmName], err
}

// OldAPIServer returns the path of the API server of an older Kubernetes, OldKubernetesVersion, for Options.APIServer. It is
// built with the dependencies that it was released with. If it is missing and build is false, the path is empty.
func OldAPIServer(ctx context.Context, logf func(format string, args ...any), build bool) (path string, err error) {
	b, err := newBuilder(old, logf)
	if err != nil {
		return "", err
	}
	p := apiServerProgram
	p.seconds = 240 // nothing of it has been compiled for another program
	if build {
		err = b.ensure(ctx, []program{p})
	}
	return b.cached(p), err
}

// CertManager returns the path of a program that runs cert-manager's controllers or its cainjector (certmanager/main.go), as OldAPIServer does.
func CertManager(ctx context.Context, logf func(format string, args ...any), build bool) (path string, err error) {
	b, err := newBuilder(certManager, logf)
	if err != nil {
		return "", err
	}
	if build {
		err = b.ensure(ctx, []program{certManagerProgram})
	}
	return b.cached(certManagerProgram), err
}

// resolve returns the paths of programs by their names. Those that are not found are built. The user's own kubectl and Helm are
// taken only if users says so: their versions may differ, and the tests compare messages.
func resolve(ctx context.Context, logf func(string, ...any), wanted []program, users bool) (map[string]string, error) {
	b, err := newBuilder(current, logf)
	if err != nil {
		return nil, err
	}
	finder := b.finder(users)
	paths := map[string]string{}
	var missing []program
	var places []string
	found := map[string][]string{}
	for _, p := range wanted {
		path, where, err := finder.Find(ctx, p.name)
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

// finder returns what looks for programs that need not be built.
func (b *builder) finder(users bool) *lookup.Finder {
	return lookup.New(lookup.Options{
		Kubernetes: b.version(kubernetesModule), Etcd: b.version(etcdProgram.module), Helm: b.version(helmModule),
		Built: b.dir, Downloads: filepath.Join(b.dir, "..", "..", "downloads"), PATH: users, Logf: b.logf,
	})
}

// cached returns the path of a program in the cache, which is empty if it is not there.
func (b *builder) cached(p program) string {
	if path := b.path(p); lookup.IsFile(path) {
		return path
	}
	return ""
}

// path returns where in the cache a program belongs.
func (b *builder) path(p program) string { return filepath.Join(b.dir, p.name) }
