package runtime

import "context"

// Guard wraps a runtime so that it is asked before each call that gives the machine's VirtualMachine a hold on it or changes
// it, and its error returned in place of the call. Looking, withdrawing what is in flight, and letting the machine go are
// never refused: whoever loses a right can still end what was begun. What it returns is a Migrator exactly if the runtime is one.
func Guard(inner Runtime, ask func(ctx context.Context, machine Machine) error) Runtime {
	return wrap(inner, func(ctx context.Context, verb Verb, machine Machine, call func(context.Context) error) error {
		switch verb {
		case VerbObserve, VerbCancel, VerbDelete:
		default:
			if err := ask(ctx, machine); err != nil {
				return err
			}
		}
		return call(ctx)
	})
}
