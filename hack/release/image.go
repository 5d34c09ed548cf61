package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// inImage is the path of the program in the image, which the chart knows.
const inImage = "/usr/local/bin/sallyport"

// nobody is the user and the group that the program runs as.
const nobody = "65532:65532"

// A release is what is made of a build.
type release struct {
	*build
	out io.Writer
	// dist is the folder of the files that are released.
	dist  string
	index v1.ImageIndex
	// digest is that of index.
	digest v1.Hash
	// bill is the SBOM.
	bill []byte
	// packed is the chart's package.
	packed string
}

// file returns the path of a file of the release.
func (r *release) file(format string, args ...any) string {
	return filepath.Join(r.dist, fmt.Sprintf(format, args...))
}

// image writes the image of all platforms as an OCI archive.
func (r *release) image(ctx context.Context) error {
	labels := map[string]string{
		"org.opencontainers.image.title": "sallyport", "org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source": "https://sallyport.dev/sallyport", "org.opencontainers.image.version": r.version,
		"org.opencontainers.image.revision": r.revision, "org.opencontainers.image.created": r.when.Format(time.RFC3339),
	}
	r.index = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.imagePlatforms {
		image, err := r.imageOf(ctx, p, labels)
		if err != nil {
			return fmt.Errorf("making the image of %s: %w", p, err)
		}
		r.index = mutate.AppendManifests(r.index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	r.index = mutate.Annotations(r.index, labels).(v1.ImageIndex)
	var err error
	if r.digest, err = r.index.Digest(); err != nil {
		return err
	}
	archive := r.file("sallyport_%s_image.tar", r.version)
	if err := r.saveImage(archive); err != nil {
		return fmt.Errorf("writing %s: %w", archive, err)
	}
	fmt.Fprintf(r.out, "%s %s\n", archive, r.digest)
	return nil
}

// imageOf returns the image of a platform: the program and nothing else. It needs no shell, no temporary folder and no certificates: a
// vCenter is trusted by what its VSphereServer says.
func (r *release) imageOf(ctx context.Context, p platform, labels map[string]string) (v1.Image, error) {
	binary, err := r.binary(ctx, p)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.work, "layer-"+p.String()+".tar")
	if err := write(path, func(w io.Writer) error {
		return writeTar(w, r.when, []file{{name: inImage[1:], path: binary, mode: 0o755}})
	}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.when}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: p.os, Architecture: p.arch, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{inImage}, User: nobody, Labels: labels},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "hack/release"}})
}

// saveImage writes an archive that podman, skopeo, and ctr and docker with containerd's store, load.
func (r *release) saveImage(archive string) error {
	folder := filepath.Join(r.work, "layout")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	repository, err := r.imageRepository()
	if err != nil {
		return err
	}
	names := map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": repository.Tag(r.version).Name()}
	if err := path.AppendIndex(r.index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, err := below(folder, "")
	if err != nil {
		return err
	}
	return write(archive, func(w io.Writer) error { return writeTar(w, r.when, files) })
}
