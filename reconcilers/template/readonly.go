package template

import (
	"context"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// ReadOnly returns a store that shows what is in folders, and changes nothing: what would gives [runtime.ErrReadOnly].
func ReadOnly(of Store) Store { return readOnly{of} }

type readOnly struct {
	looks interface {
		Look(ctx context.Context, d Domain) (View, error)
	}
}

// Look shows what is in the folder.
func (r readOnly) Look(ctx context.Context, d Domain) (View, error) { return r.looks.Look(ctx, d) }

// Import changes nothing.
func (readOnly) Import(context.Context, Domain, Import, func(int32)) (Item, error) {
	return Item{}, runtime.ErrReadOnly
}

// Finish changes nothing.
func (readOnly) Finish(context.Context, Domain, Item) (Item, error) {
	return Item{}, runtime.ErrReadOnly
}

// Rename changes nothing.
func (readOnly) Rename(context.Context, Domain, Item, string) (Item, error) {
	return Item{}, runtime.ErrReadOnly
}

// Replace changes nothing.
func (readOnly) Replace(context.Context, Domain, Item, string, Item) error {
	return runtime.ErrReadOnly
}

// Destroy changes nothing.
func (readOnly) Destroy(context.Context, Domain, Item) error { return runtime.ErrReadOnly }
