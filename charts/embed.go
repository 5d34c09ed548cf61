// Package charts carries the Helm chart inside the binary, so that commands that
// need the chart or the custom resource definitions work without a checkout.
package charts

import (
	"embed"
	"fmt"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Files holds the chart below its folder, sallyport.
//
//go:embed all:sallyport
var Files embed.FS

const crdFolder = "sallyport/files/crds"

// CRDs are the custom resource definitions of the chart, in the order of their
// names. Each call decodes them anew, so callers may change what they get.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	entries, err := Files.ReadDir(crdFolder)
	if err != nil {
		return nil, fmt.Errorf("listing custom resource definitions: %w", err)
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(entries))
	for _, entry := range entries {
		text, err := Files.ReadFile(path.Join(crdFolder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", entry.Name(), err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", entry.Name(), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}
