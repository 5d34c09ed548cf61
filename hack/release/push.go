package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The media types of a chart, as Helm has them, and of an SBOM.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	cycloneDX    types.MediaType = "application/vnd.cyclonedx+json"
)

// repository returns one below where the release is pushed to.
func (r *release) repository(path string) (name.Repository, error) {
	repository, err := name.NewRepository(r.push + "/" + path)
	if err != nil {
		return repository, fmt.Errorf("registry to push to: %w", err)
	}
	return repository, nil
}

// access returns the options of all requests. The credentials are those of docker login and podman login.
func access(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// pushImage pushes the image of all platforms.
func (r *release) pushImage(ctx context.Context) error {
	repository, err := r.imageRepository()
	if err != nil {
		return err
	}
	return r.put(ctx, repository.Tag(r.version), r.index)
}

// pushInventory attaches the SBOM to the image.
func (r *release) pushInventory(ctx context.Context) error {
	repository, err := r.imageRepository()
	if err != nil {
		return err
	}
	subject, err := partial.Descriptor(r.index)
	if err != nil {
		return err
	}
	// Some registries take the type of the artifact from the type of its config.
	m := manifest{ArtifactType: string(cycloneDX), Subject: subject}
	if err := m.upload(ctx, repository, static.NewLayer([]byte("{}"), cycloneDX), static.NewLayer(r.bill, cycloneDX)); err != nil {
		return err
	}
	digest, err := partial.Digest(m)
	if err != nil {
		return err
	}
	return r.put(ctx, repository.Digest(digest.String()), m)
}

// pushChart pushes the chart's package as helm push does. It is pushed last, so that its image exists.
func (r *release) pushChart(ctx context.Context) error {
	repository, err := r.repository("charts/sallyport")
	if err != nil {
		return err
	}
	packed, err := os.ReadFile(r.packed)
	if err != nil {
		return err
	}
	definition, err := os.ReadFile(filepath.Join(r.work, "chart", "Chart.yaml"))
	if err != nil {
		return err
	}
	config, err := yaml.YAMLToJSON(definition)
	if err != nil {
		return err
	}
	m := manifest{}
	if err := m.upload(ctx, repository, static.NewLayer(config, chartConfig), static.NewLayer(packed, chartContent)); err != nil {
		return err
	}
	return r.put(ctx, repository.Tag(r.chartVersion()), m)
}

// put pushes a manifest. A tag of a release never moves, because those who have pulled it would not learn of it.
func (r *release) put(ctx context.Context, ref name.Reference, what remote.Taggable) error {
	digest, err := partial.Digest(what)
	if err != nil {
		return err
	}
	there, err := remote.Head(ref, access(ctx)...)
	var answer *transport.Error
	switch missing := errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound; {
	case err != nil && !missing:
		return fmt.Errorf("looking for %s: %w", ref, err)
	case err == nil && there.Digest != digest && !r.imageOnly:
		return fmt.Errorf("%s is already %s, not %s; choose another version", ref, there.Digest, digest)
	}
	if err := remote.Push(ref, what, access(ctx)...); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	fmt.Fprintf(r.out, "pushed %s %s\n", ref, digest)
	return nil
}

// A manifest is one of an artifact that is no image.
type manifest struct {
	ArtifactType string
	Config       v1.Descriptor
	Layers       []v1.Descriptor
	Subject      *v1.Descriptor
}

// upload pushes the blobs of a manifest, and adds them to it.
func (m *manifest) upload(ctx context.Context, repository name.Repository, config, content v1.Layer) error {
	for _, layer := range []v1.Layer{config, content} {
		if err := remote.WriteLayer(repository, layer, access(ctx)...); err != nil {
			return fmt.Errorf("pushing to %s: %w", repository, err)
		}
		d, err := partial.Descriptor(layer)
		if err != nil {
			return err
		}
		m.Layers = append(m.Layers, *d)
	}
	m.Config, m.Layers = m.Layers[0], m.Layers[1:]
	return nil
}

// RawManifest returns the bytes that are pushed.
func (m manifest) RawManifest() ([]byte, error) {
	return json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: m.ArtifactType, Config: m.Config, Layers: m.Layers, Subject: m.Subject,
	})
}

// MediaType returns that of images: the config's tells what it is.
func (m manifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
