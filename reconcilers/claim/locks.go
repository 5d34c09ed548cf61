package claim

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Locks holds one lock per machine. A holder keeps it from the live read of the claim to the reply of the runtime
// call, so that no other goroutine can take the claim in between. Between processes, leader election and the timeout
// of runtime calls ensure this.
type Locks struct {
	mu     sync.Mutex
	queues map[types.NamespacedName]*queue
}

type queue struct {
	turn    chan struct{} // holds one token while the lock is free
	waiting int
}

// Lock waits for the lock of a machine, identified by the key of its VirtualMachine, and returns the function that
// releases it. The error is that of the context.
func (l *Locks) Lock(ctx context.Context, machine types.NamespacedName) (release func(), err error) {
	q := l.join(machine)
	select {
	case <-q.turn:
		return func() {
			q.turn <- struct{}{}
			l.leave(machine, q)
		}, nil
	case <-ctx.Done():
		l.leave(machine, q)
		return nil, fmt.Errorf("waiting for the lock of machine %s: %w", machine, context.Cause(ctx))
	}
}

// LockMoves waits for the single lock of all moves, and returns the function that releases it. It is held from the
// evaluation of a move to the write of the claim, so that a limit on concurrent moves counts every admitted move. The
// caller already holds the lock of a machine, and must not wait for the lock of another one while holding this one.
// The error is that of the context.
func (l *Locks) LockMoves(ctx context.Context) (release func(), err error) {
	return l.Lock(ctx, types.NamespacedName{}) // an empty key, which no machine has
}

// idle reports whether no lock is held or waited for.
func (l *Locks) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queues) == 0
}

func (l *Locks) join(machine types.NamespacedName) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[machine]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		q.turn <- struct{}{}
		if l.queues == nil {
			l.queues = map[types.NamespacedName]*queue{}
		}
		l.queues[machine] = q
	}
	q.waiting++
	return q
}

// leave removes a lock that is neither held nor waited for, so that deleted machines leave nothing behind.
func (l *Locks) leave(machine types.NamespacedName, q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		delete(l.queues, machine)
	}
}
