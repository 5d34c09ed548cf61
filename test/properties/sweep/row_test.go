//go:build !race

package sweep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/operation"
	"sallyport.dev/sallyport/test/support/double/vcsim"
)

// row is an operation of the table, on a vCenter of its own.
type row struct {
	kind
	api     client.WithWatch
	judge   operation.Arbiter
	vcenter *vcsim.VCenter
	setup   *process // It brings machines to where the operation begins.

	tally
}

func newRow(t *testing.T, api client.WithWatch, judge operation.Arbiter, k kind) *row {
	t.Helper()
	vcenter, err := vcsim.Start(vcsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(vcenter.Close)
	if k.tagged {
		if err := vcenter.Tag(t.Context(), vcenter.Hosts()[0], "zone", "b"); err != nil {
			t.Fatal(err)
		}
	}
	r := &row{kind: k, api: api, judge: judge, vcenter: vcenter, tally: tally{of: k.name, seldom: k.seldom}}
	r.setup = newProcess(api, judge, vcenter)
	return r
}

func (r *row) process() *process { return newProcess(r.api, r.judge, r.vcenter) }

// clean runs the operation undisturbed.
func (r *row) clean(ctx context.Context) error {
	p := r.process()
	called, end, err := r.run(ctx, "clean", p)
	r.requests, r.end = requests(called), end
	return errors.Join(err, p.close())
}

// run runs the operation on a machine of that name.
func (r *row) run(ctx context.Context, machine string, first *process) (called, end []string, err error) {
	t, err := r.newTrial(ctx, machine)
	if err == nil && r.before != nil {
		err = r.before(ctx, t)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("before the operation: %w", err)
	}
	if err := r.begin(ctx, t); err != nil {
		return nil, nil, fmt.Errorf("asking for the operation: %w", err)
	}
	last := first
	called, err = t.drive(ctx, first, func() *process {
		last = r.process()
		return last
	})
	if err != nil {
		err = fmt.Errorf("%w; on the way there was\n%s", err, strings.Join(t.log, "\n"))
	}
	if last != first {
		err = errors.Join(err, last.close())
	}
	end, endErr := t.end(ctx)
	t.clear()
	return called, end, errors.Join(err, endErr)
}

// point runs the operation with that fault at that request, and gives what is wrong with how it ends.
func (r *row) point(ctx context.Context, at request, f fault) error {
	p := r.process()
	f.befall(p, at)
	_, end, err := r.run(ctx, strings.NewReplacer(" ", "-", "/", "-").Replace(at.String()+" "+f.name), p)
	came := p.faults.Clear() == 0
	err = errors.Join(err, p.close(), otherwise(err == nil, r.end, end))
	r.count(at, f, came, err)
	return err
}

// close ends what the row has started, and tells whether a session is left that somebody could have ended.
func (r *row) close() error {
	return errors.Join(r.setup.close(), r.left(r.vcenter.Sessions()))
}
