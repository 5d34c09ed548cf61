// Package statuses makes statuses fit the schemas of their kinds before they are written. A status contains text from elsewhere, such as the
// name of an audited object or an error from vCenter. Without this, the API server would reject the whole status if one text is too long.
package statuses

import (
	"context"
	"fmt"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient returns a constructor for the client of a manager. The client makes the statuses of the given kinds fit their schemas.
func NewClient(crds []*apiextensionsv1.CustomResourceDefinition) (client.NewClientFunc, error) {
	bounds := map[schema.GroupVersionKind]*bound{}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			b, err := newBound(version.Schema.OpenAPIV3Schema.Properties["status"])
			if err != nil {
				return nil, fmt.Errorf("reading the schema of %s: %w", crd.Name, err)
			}
			bounds[schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}] = b
		}
	}
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := client.New(config, options)
		return fitting{c, bounds}, err
	}, nil
}

type fitting struct {
	client.Client
	bounds map[schema.GroupVersionKind]*bound
}

func (f fitting) Status() client.SubResourceWriter { return writer{f.Client.Status(), f.fit} }

type writer struct {
	client.SubResourceWriter
	fit func(client.Object) error
}

func (w writer) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	if err := w.fit(object); err != nil {
		return err
	}
	return w.SubResourceWriter.Update(ctx, object, options...)
}

func (w writer) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if err := w.fit(object); err != nil {
		return err
	}
	return w.SubResourceWriter.Patch(ctx, object, patch, options...)
}

// fit changes the status of an object so that its schema admits it.
func (f fitting) fit(object client.Object) error {
	kind, err := f.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("finding the kind of %s: %w", object.GetName(), err)
	}
	b := f.bounds[kind]
	if b == nil {
		return nil
	}
	status := reflect.ValueOf(object).Elem().FieldByName("Status")
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status.Addr().Interface())
	if err != nil {
		return fmt.Errorf("encoding the status of %s %s: %w", kind.Kind, object.GetName(), err)
	}
	fitted, _ := b.fit(content)
	if reflect.DeepEqual(fitted, any(content)) {
		return nil
	}
	fresh := reflect.New(status.Type())
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fitted.(map[string]any), fresh.Interface()); err != nil {
		return fmt.Errorf("decoding the status of %s %s: %w", kind.Kind, object.GetName(), err)
	}
	status.Set(fresh.Elem())
	return nil
}
