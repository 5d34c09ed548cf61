package env

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Manifests returns the objects that a program such as kubevirt-manifests prints, and the definitions among them without their status.
func Manifests(ctx context.Context, program string) (objects []unstructured.Unstructured, crds []*apiextensionsv1.CustomResourceDefinition, err error) {
	out, err := exec.CommandContext(ctx, program).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("running %s: %w", program, err)
	}
	list := unstructured.UnstructuredList{}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, nil, fmt.Errorf("reading what %s prints: %w", program, err)
	}
	for _, o := range list.Items {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd); err != nil {
			return nil, nil, fmt.Errorf("definition %s: %w", o.GetName(), err)
		}
		crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		crds = append(crds, crd)
	}
	return list.Items, crds, nil
}
