package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
)

// evaluate runs one query, as a program if possible. If topdown evaluates it, it returns at the deadline, even if the evaluation goes on: OPA
// checks for cancellation only between calls of builtins.
func (p *Policy) evaluate(ctx context.Context, in Input, q *query, input Value) (topdown.QueryResultSet, error) {
	if err := p.checkLeftBehind(); err != nil {
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
	if result, done := p.runProgram(ctx, in, q, input); done {
		leave()
		return result, nil
	}
	cancel := topdown.NewCancel()
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		metered, release := builtins.Metered(ctx)
		defer func() {
			release()
			leave()
			done <- o
		}()
		defer recoverPanic(&o.err)
		o.result, o.err = topdown.NewQuery(q.body).WithCompiler(p.compiler).WithStore(p.store).WithTransaction(p.txn).
			WithInput(input.orNull()).WithVirtualCache(newResults()).WithStrictBuiltinErrors(true).WithCancel(cancel).WithMetrics(metrics.NoOp()).Run(metered)
	}()
	select {
	case o := <-done:
		return o.result, evaluationError(o.err)
	case <-ctx.Done():
		cancel.Cancel()
		deadline, _ := ctx.Deadline()
		leaveBehind(p, time.Until(deadline), done)
		return nil, deadlineError(ctx, fmt.Sprintf("no decision within %v", p.timeout))
	}
}

// tracer has the methods that OPA calls on every tracer.
type tracer struct{}

// Enabled implements topdown.QueryTracer.
func (tracer) Enabled() bool { return true }

// Config implements topdown.QueryTracer. Tracers read the variables from the events themselves.
func (tracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// deadlineError returns the error for an expired deadline, or for a caller that disconnected.
func deadlineError(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errorf(CallerGone, "the caller disconnected before the decision: %w", context.Cause(ctx))
	}
	return errorf(DeadlineExceeded, "%s: %w", what, context.Cause(ctx))
}

// An evaluation is left behind if it exceeded its deadline and still runs. Such evaluations must not block other requests, and must
// not use all processors. A policy without such evaluations always decides. With some, it decides while it has fewer than
// ownSlots, and all policies together have fewer than sharedSlots. Evaluations that began before come on top. Both limits are
// several times what Input.Enter allows to one user, so that one user cannot get a policy cut off for others.
const ownSlots = 8

// sharedSlots leaves at least a fifth of the processors to one decision at a time: Go's scheduler switches goroutines every 10 ms.
func sharedSlots() int64 { return max(ownSlots, 4*int64(runtime.GOMAXPROCS(0))) }

// leftBehind counts the evaluations of all policies that are left behind.
var leftBehind atomic.Int64

// checkLeftBehind returns an error if too many evaluations are left behind.
func (p *Policy) checkLeftBehind() error {
	stuck := p.leftBehind.Load()
	if stuck == 0 || stuck < ownSlots && leftBehind.Load() < sharedSlots() {
		return nil
	}
	return errorf(StillRunning, "%d earlier evaluations of policy %s exceeded their deadline of %v and are still running", stuck, p.name, p.timeout)
}

// leaveBehind counts an evaluation from its deadline until it is done. It does not count if the caller left earlier: that must not
// affect other requests.
func leaveBehind[T any](p *Policy, left time.Duration, done <-chan T) {
	count := func(n int64) {
		p.leftBehind.Add(n)
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
