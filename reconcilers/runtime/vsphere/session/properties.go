package session

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Read reads properties of an object. An object that is gone is a NotFound error.
func (s *Server) Read(ctx context.Context, ref types.ManagedObjectReference, into any, properties ...string) error {
	return s.Call(ctx, func(c *vim25.Client) error {
		return property.DefaultCollector(c).RetrieveOne(ctx, ref, properties, into)
	})
}

// NotGone converts the error of a read: that another object is missing does not mean that what is searched for is gone.
func (s *Server) NotGone(err error) error {
	if runtime.IsNotFound(err) {
		return runtime.NewUnavailable(err, "vCenter %s did not show all that is needed", s.Config.Name)
	}
	return err
}

// Retrieve reads properties and calls each with every object. Objects that were removed meanwhile are left out; a
// property that may not be read is an error, since it need not be empty.
func (s *Server) Retrieve(ctx context.Context, filter types.PropertyFilterSpec, each func(object any)) error {
	var found []any
	err := s.Call(ctx, func(c *vim25.Client) (err error) {
		found, err = Properties(ctx, c, filter)
		return err
	})
	for _, object := range found {
		each(object)
	}
	return err
}

// Only drops objects of another type than the filter's: vCenter's answer is not trusted.
func Only[T any](each func(T)) func(object any) {
	return func(object any) {
		if of, is := object.(T); is {
			each(of)
		}
	}
}

// Properties reads what the filter selects. Objects that were removed meanwhile are left out.
func Properties(ctx context.Context, c *vim25.Client, filter types.PropertyFilterSpec) (found []any, err error) {
	answer, err := property.DefaultCollector(c).RetrieveProperties(ctx, types.RetrieveProperties{SpecSet: []types.PropertyFilterSpec{filter}})
	if err != nil {
		return nil, err
	}
	for _, content := range answer.Returnval {
		object, err := mo.ObjectContentToType(content)
		if fault.Is(err, &types.ManagedObjectNotFound{}) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", content.Obj, err)
		}
		found = append(found, object)
	}
	return found, nil
}
