// Command release makes what a release consists of: `make image` and `make release` run it. The same commit, version and Go release give
// the same files, wherever they are built.
//
// ko, goreleaser and docker are not used: the image is one file without a base, which neither an engine nor root is needed for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
)

// platforms are those that people run the commands on, imagePlatforms those of the image.
var (
	platforms      = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}
	imagePlatforms = platforms[:2]
)

// options say what is released.
type options struct {
	// root is the folder of the repository, out the folder that gets a folder with the name of the version.
	root, out string
	version   string
	// push is the registry, with a path if the repositories are below one. Empty: nothing is pushed.
	push string
	// downloads is the URL of the folder that the files will be downloaded from.
	downloads string
	// imageOnly makes only the image, also from a tree with uncommitted changes, and moves its tag.
	imageOnly bool
	// program is the package that is built.
	program                   string
	platforms, imagePlatforms []platform
}

func main() {
	o := options{root: ".", program: "./cmd/sallyport", platforms: platforms, imagePlatforms: imagePlatforms}
	flag.StringVar(&o.version, "version", "", "the `version`, such as v0.1.0")
	flag.StringVar(&o.out, "out", "dist", "the `folder` to write into, below a folder with the name of the version")
	flag.StringVar(&o.push, "push", "", "push to this `registry`, such as registry.example.org/team")
	flag.StringVar(&o.downloads, "downloads", "https://sallyport.dev/releases", "the `URL` below which the files of each version will be published")
	flag.BoolVar(&o.imageOnly, "image-only", false, "make only the image, also from a tree with uncommitted changes, and move its tag")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A version of semver without build metadata, which tags of registries cannot have.
var versions = regexp.MustCompile(`^v(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?$`)

func run(ctx context.Context, out io.Writer, o options) (err error) {
	if !versions.MatchString(o.version) {
		return fmt.Errorf("-version %q: must be a semantic version with a leading v, such as v0.1.0", o.version)
	}
	b, err := newBuild(ctx, o)
	if err != nil {
		return err
	}
	if !o.imageOnly && b.treeState != clean {
		return errors.New("the tree has uncommitted changes; commit or stash them, so that the revision says what is released")
	}
	if b.work, err = os.MkdirTemp("", "sallyport-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	r := &release{build: b, out: out, dist: filepath.Join(o.out, o.version)}
	// Files of an earlier attempt would look like those of this one.
	if err := errors.Join(os.RemoveAll(r.dist), os.MkdirAll(r.dist, 0o755)); err != nil {
		return err
	}
	made, pushed := []func(context.Context) error{r.image}, []func(context.Context) error{r.pushImage}
	if !o.imageOnly {
		made, pushed = append(made, r.chart, r.inventory, r.archives, r.krew, r.checksums), append(pushed, r.pushInventory, r.pushChart)
	}
	if o.push != "" {
		made = append(made, pushed...)
	}
	for _, step := range made {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
