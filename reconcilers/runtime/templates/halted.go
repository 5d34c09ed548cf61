package templates

import "context"

// Halted returns a store that reads folders, and returns the error for changes.
func Halted(of Store, by error) Store { return halted{of, by} }

type halted struct {
	looks interface {
		Look(ctx context.Context, d Domain) (View, error)
	}
	by error
}

func (h halted) Look(ctx context.Context, d Domain) (View, error) { return h.looks.Look(ctx, d) }

func (h halted) Import(context.Context, Domain, Import, func(int32)) (Item, error) {
	return Item{}, h.by
}

func (h halted) Finish(context.Context, Domain, Item) (Item, error) {
	return Item{}, h.by
}

func (h halted) Rename(context.Context, Domain, Item, string) (Item, error) {
	return Item{}, h.by
}

func (h halted) Replace(context.Context, Domain, Item, string, Item) error {
	return h.by
}

func (h halted) Destroy(context.Context, Domain, Item) error { return h.by }
