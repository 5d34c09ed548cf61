package sim

import (
	"context"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/runtime/templates"
)

// NoTemplates is a vCenter that has none, and where none can be made.
type NoTemplates struct{}

var errNone = runtime.NewUnavailable(nil, "no templates are simulated")

// Look shows that there is nothing.
func (NoTemplates) Look(context.Context, templates.Domain) (templates.View, error) {
	return templates.View{}, nil
}

// Import fails.
func (NoTemplates) Import(context.Context, templates.Domain, templates.Import, func(int32)) (templates.Item, error) {
	return templates.Item{}, errNone
}

// Finish fails.
func (NoTemplates) Finish(context.Context, templates.Domain, templates.Item) (templates.Item, error) {
	return templates.Item{}, errNone
}

// Rename fails.
func (NoTemplates) Rename(context.Context, templates.Domain, templates.Item, string) (templates.Item, error) {
	return templates.Item{}, errNone
}

// Replace fails.
func (NoTemplates) Replace(context.Context, templates.Domain, templates.Item, string, templates.Item) error {
	return errNone
}

// Destroy fails.
func (NoTemplates) Destroy(context.Context, templates.Domain, templates.Item) error { return errNone }
