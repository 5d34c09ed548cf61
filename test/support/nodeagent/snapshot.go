package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func (a *Agent) options(ctx context.Context) []remote.Option {
	through := a.Transport
	if through == nil {
		through = remote.DefaultTransport
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(through), remote.WithRetryBackoff(remote.Backoff{Steps: 1})}
}

// push pushes a machine as an image whose one layer says what it is.
func (a *Agent) push(ctx context.Context, is content) (digest string, err error) {
	to, err := name.NewTag(is.Ref, name.StrictValidation)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(is)
	if err != nil {
		return "", err
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(text, types.OCIUncompressedLayer))
	if err != nil {
		return "", err
	}
	if err := remote.Write(to, image, a.options(ctx)...); err != nil {
		return "", err
	}
	of, err := image.Digest()
	return of.String(), err
}

// pull gives what was pushed under that digest.
func (a *Agent) pull(ctx context.Context, from string) (is content, err error) {
	ref, err := name.NewDigest(from, name.StrictValidation)
	if err != nil {
		return is, err
	}
	image, err := remote.Image(ref, a.options(ctx)...)
	if err != nil {
		return is, err
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		return is, errors.Join(err, errors.New("the image is not a machine"))
	}
	text, err := layers[0].Compressed()
	if err != nil {
		return is, err
	}
	defer text.Close()
	all, err := io.ReadAll(text)
	if err != nil {
		return is, err
	}
	return is, json.Unmarshal(all, &is)
}

// isGone tells whether the registry does not have what was asked for.
func isGone(err error) bool {
	answer, is := errors.AsType[*transport.Error](err)
	return is && answer.StatusCode == http.StatusNotFound
}
