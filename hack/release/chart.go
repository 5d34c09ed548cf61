package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"sigs.k8s.io/yaml"
)

// chartFolder is the folder of the chart in the repository.
const chartFolder = "charts/sallyport"

// chartVersion returns the version in the form of charts, without a leading v.
func (r *release) chartVersion() string { return r.version[1:] }

// chart writes the chart's package. Its version is that of the release, and its default image the one that was built.
func (r *release) chart(context.Context) error {
	repository, err := r.imageRepository()
	if err != nil {
		return err
	}
	folder := filepath.Join(r.work, "chart")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(r.root, chartFolder))); err != nil {
		return err
	}
	if err := edit(filepath.Join(folder, "Chart.yaml"), map[string]string{`^version: `: r.chartVersion(), `^appVersion: `: r.version}); err != nil {
		return err
	}
	inImage := func(key string) string { return `^image:\n(?:  .*\n)*?  ` + key + ": " }
	if err := edit(filepath.Join(folder, "values.yaml"), map[string]string{
		inImage("registry"): repository.RegistryStr(), inImage("repository"): repository.RepositoryStr(), inImage("digest"): r.digest.String(),
	}); err != nil {
		return err
	}
	files, err := below(folder, "sallyport/")
	if err != nil {
		return err
	}
	r.packed = r.file("sallyport-%s.tgz", r.chartVersion())
	return write(r.packed, func(w io.Writer) error { return writeTarGz(w, r.when, files) })
}

// edit replaces the rest of the lines that patterns find the begin of, and keeps the comments of the file.
func edit(path string, rest map[string]string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for pattern, value := range rest {
		expression := regexp.MustCompile(`(?m)(` + pattern + `).*$`)
		if len(expression.FindAll(text, -1)) != 1 {
			return fmt.Errorf("editing %s: %q is not there once", filepath.Base(path), pattern)
		}
		text = expression.ReplaceAll(text, []byte("${1}"+strings.ReplaceAll(value, "$", "$$")))
	}
	return os.WriteFile(path, text, 0o600)
}

// values are the chart's that are needed here.
type values struct {
	Image struct{ Registry, Repository string }
}

// imageRepository returns where the image is pushed to, or what the chart says if it is not pushed.
func (r *release) imageRepository() (name.Repository, error) {
	if r.push != "" {
		return r.repository("sallyport")
	}
	text, err := os.ReadFile(filepath.Join(r.root, chartFolder, "values.yaml"))
	if err != nil {
		return name.Repository{}, err
	}
	v := values{}
	if err := yaml.Unmarshal(text, &v); err != nil {
		return name.Repository{}, fmt.Errorf("decoding the values of the chart: %w", err)
	}
	return name.NewRepository(v.Image.Registry + "/" + v.Image.Repository)
}
