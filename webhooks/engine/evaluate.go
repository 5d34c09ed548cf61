package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// evaluate runs one query. The caller leaves at the deadline, whatever Rego does: OPA looks for a cancel only between
// calls of builtins.
func (p *Policy) evaluate(ctx context.Context, in Input, query ast.Body, input *ast.Term) (topdown.QueryResultSet, error) {
	if err := p.cutOffNow(); err != nil {
		return nil, err
	}
	leave, err := in.enter(ctx)
	if err != nil {
		return nil, err
	}
	type outcome struct {
		result topdown.QueryResultSet
		err    error
	}
	cancel := topdown.NewCancel()
	done := make(chan outcome, 1)
	p.fast.spawn(func() {
		var o outcome
		metered, release := builtins.Metered(ctx, input)
		defer func() {
			release()
			leave()
			done <- o
		}()
		defer contain(&o.err)
		o.result, o.err = topdown.NewQuery(query).WithCompiler(p.compiler).WithStore(p.store).WithTransaction(p.txn).
			WithInput(input).WithVirtualCache(newResults(p.result)).WithStrictBuiltinErrors(true).WithCancel(cancel).WithMetrics(metrics.NoOp()).Run(metered)
	})
	select {
	case o := <-done:
		return o.result, evaluationError(o.err)
	case <-ctx.Done():
		cancel.Cancel()
		deadline, _ := ctx.Deadline()
		leaveBehind(p, time.Until(deadline), done)
		return nil, tooLate(ctx, fmt.Sprintf("no decision within %v", p.timeout))
	}
}

// tracer is what OPA asks every tracer of ours: it wants the events, and looks at their variables itself.
type tracer struct{}

// Enabled is for OPA.
func (tracer) Enabled() bool { return true }

// Config asks for no more than the events themselves.
func (tracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// tooLate tells a policy, or an answer, that is slow from a caller who did not wait for it.
func tooLate(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errorf(CallerGone, "the caller disconnected before the decision: %w", context.Cause(ctx))
	}
	return errorf(DeadlineExceeded, "%s: %w", what, context.Cause(ctx))
}

// An evaluation is left behind if it overran its deadline and still runs. Such evaluations must not block other requests, and must not take
// all processors. A policy without such evaluations always decides. With some, it decides as long as it has fewer than ownSlots, and all
// policies together have fewer than sharedSlots. Evaluations that began before come on top. Both limits are several times the places that
// Input.Enter gives to one user, so that one user cannot have a policy cut off for others.
const ownSlots = 8

// sharedSlots leaves at least a fifth of the processors to one decision at a time: Go's scheduler has goroutines take turns every 10 ms.
func sharedSlots() int64 { return max(ownSlots, 4*int64(runtime.GOMAXPROCS(0))) }

// leftBehind counts the evaluations of all policies that are.
var leftBehind atomic.Int64

// cutOffNow tells of evaluations that were left behind, if there are too many.
func (p *Policy) cutOffNow() error {
	stuck := p.stuck.Load()
	if stuck == 0 || stuck < ownSlots && leftBehind.Load() < sharedSlots() {
		return nil
	}
	return errorf(StillRunning, "%d earlier evaluations of policy %s exceeded their deadline of %v and are still running", stuck, p.name, p.timeout)
}

// leaveBehind counts an evaluation until it is done, from its deadline on. A caller that leaves earlier has only lost interest: that
// must not cost other requests anything.
func leaveBehind[T any](p *Policy, left time.Duration, done <-chan T) {
	count := func(n int64) {
		p.stuck.Add(n)
		leftBehind.Add(n)
	}
	if left <= 0 {
		count(1)
	}
	go func() {
		if left > 0 {
			select {
			case <-done:
				return
			case <-time.After(left):
				count(1)
			}
		}
		<-done
		count(-1)
	}()
}

func evaluationError(err error) error {
	var mine *Error
	if err == nil || errors.As(err, &mine) {
		return err
	}
	var stopped *topdown.Error
	if errors.As(err, &stopped) && stopped.Code == builtins.Together {
		return &Error{Cause: StillRunning, Err: fmt.Errorf("evaluating: %w", err)}
	}
	return &Error{Cause: EvaluationFailed, Err: fmt.Errorf("evaluating: %w", err)}
}
