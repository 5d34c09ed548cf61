package template

import (
	"context"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// ReadOnly returns a store that reads folders and rejects changes with [runtime.ErrReadOnly].
func ReadOnly(of Store) Store { return readOnly{of} }

type readOnly struct {
	looks interface {
		Look(ctx context.Context, d Domain) (View, error)
	}
}

func (r readOnly) Look(ctx context.Context, d Domain) (View, error) { return r.looks.Look(ctx, d) }

func (readOnly) Import(context.Context, Domain, Import, func(int32)) (Item, error) {
	return Item{}, runtime.ErrReadOnly
}

func (readOnly) Finish(context.Context, Domain, Item) (Item, error) {
	return Item{}, runtime.ErrReadOnly
}

func (readOnly) Rename(context.Context, Domain, Item, string) (Item, error) {
	return Item{}, runtime.ErrReadOnly
}

func (readOnly) Replace(context.Context, Domain, Item, string, Item) error {
	return runtime.ErrReadOnly
}

func (readOnly) Destroy(context.Context, Domain, Item) error { return runtime.ErrReadOnly }
