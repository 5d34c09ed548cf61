package sim

import (
	"context"

	"sallyport.dev/sallyport/reconcilers/runtime"
	"sallyport.dev/sallyport/reconcilers/template"
)

// NoTemplates is a vCenter that has none, and where none can be made.
type NoTemplates struct{}

var errNone = runtime.NewUnavailable(nil, "no templates are simulated")

// Look shows that there is nothing.
func (NoTemplates) Look(context.Context, template.Domain) (template.View, error) {
	return template.View{}, nil
}

// Import fails.
func (NoTemplates) Import(context.Context, template.Domain, template.Import, func(int32)) (template.Item, error) {
	return template.Item{}, errNone
}

// Finish fails.
func (NoTemplates) Finish(context.Context, template.Domain, template.Item) (template.Item, error) {
	return template.Item{}, errNone
}

// Rename fails.
func (NoTemplates) Rename(context.Context, template.Domain, template.Item, string) (template.Item, error) {
	return template.Item{}, errNone
}

// Replace fails.
func (NoTemplates) Replace(context.Context, template.Domain, template.Item, string, template.Item) error {
	return errNone
}

// Destroy fails.
func (NoTemplates) Destroy(context.Context, template.Domain, template.Item) error { return errNone }
