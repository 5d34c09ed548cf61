package runtime

import "context"

// around is what a decorator does around every call.
type around func(ctx context.Context, verb Verb, machine Machine, call func(context.Context) error) error

// wrap gives the runtime with that around every call. What it returns is a Migrator exactly if the runtime is one.
func wrap(inner Runtime, do around) Runtime {
	outer := &wrapped{inner: inner, do: do}
	if migrator, ok := inner.(Migrator); ok {
		return &wrappedMigrator{wrapped: outer, migrator: migrator}
	}
	return outer
}

type wrapped struct {
	inner Runtime
	do    around
}

type wrappedMigrator struct {
	*wrapped
	migrator Migrator
}

// Observe calls the runtime.
func (w *wrapped) Observe(ctx context.Context, machine Machine) (seen Observation, err error) {
	err = w.do(ctx, VerbObserve, machine, func(ctx context.Context) error {
		seen, err = w.inner.Observe(ctx, machine)
		return err
	})
	return seen, err
}

// Ensure calls the runtime.
func (w *wrapped) Ensure(ctx context.Context, machine Machine) (instanceID string, err error) {
	err = w.do(ctx, VerbEnsure, machine, func(ctx context.Context) error {
		instanceID, err = w.inner.Ensure(ctx, machine)
		return err
	})
	return instanceID, err
}

// PowerOn calls the runtime.
func (w *wrapped) PowerOn(ctx context.Context, machine Machine) error {
	return w.do(ctx, VerbPowerOn, machine, func(ctx context.Context) error { return w.inner.PowerOn(ctx, machine) })
}

// PowerOff calls the runtime.
func (w *wrapped) PowerOff(ctx context.Context, machine Machine, mode Mode) error {
	return w.do(ctx, VerbPowerOff, machine, func(ctx context.Context) error { return w.inner.PowerOff(ctx, machine, mode) })
}

// Cancel calls the runtime.
func (w *wrapped) Cancel(ctx context.Context, machine Machine, task string) error {
	return w.do(ctx, VerbCancel, machine, func(ctx context.Context) error { return w.inner.Cancel(ctx, machine, task) })
}

// Delete calls the runtime.
func (w *wrapped) Delete(ctx context.Context, machine Machine) error {
	return w.do(ctx, VerbDelete, machine, func(ctx context.Context) error { return w.inner.Delete(ctx, machine) })
}

// Migrate calls the runtime.
func (w *wrappedMigrator) Migrate(ctx context.Context, machine Machine, target Target) error {
	return w.do(ctx, VerbMigrate, machine, func(ctx context.Context) error { return w.migrator.Migrate(ctx, machine, target) })
}
