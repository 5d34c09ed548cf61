package templates

import "context"

// Halted returns a store that asks before each change. An error is returned in place of the change.
func Halted(of Store, by func(context.Context) error) Store { return halted{of, by} }

type halted struct {
	of Store
	by func(context.Context) error
}

func (h halted) Look(ctx context.Context, d Domain) (View, error) { return h.of.Look(ctx, d) }

func (h halted) Import(ctx context.Context, d Domain, i Import, progress func(int32)) (Item, error) {
	if err := h.by(ctx); err != nil {
		return Item{}, err
	}
	return h.of.Import(ctx, d, i, progress)
}

func (h halted) Finish(ctx context.Context, d Domain, item Item) (Item, error) {
	if err := h.by(ctx); err != nil {
		return Item{}, err
	}
	return h.of.Finish(ctx, d, item)
}

func (h halted) Rename(ctx context.Context, d Domain, item Item, name string) (Item, error) {
	if err := h.by(ctx); err != nil {
		return Item{}, err
	}
	return h.of.Rename(ctx, d, item, name)
}

func (h halted) Replace(ctx context.Context, d Domain, item Item, name string, by Item) error {
	if err := h.by(ctx); err != nil {
		return err
	}
	return h.of.Replace(ctx, d, item, name, by)
}

func (h halted) Destroy(ctx context.Context, d Domain, item Item) error {
	if err := h.by(ctx); err != nil {
		return err
	}
	return h.of.Destroy(ctx, d, item)
}
