package claim

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Locks holds one lock per machine. It is held from the live read of the claim to the reply of the runtime call, so that
// within one process a holder cannot lose the claim between its read and its call. Between processes, leader election and
// the time limit of runtime calls ensure that.
type Locks struct {
	mu     sync.Mutex
	queues map[types.NamespacedName]*queue
}

type queue struct {
	turn    chan struct{} // holds one token while the lock is free
	waiting int
}

// Lock waits for the lock of a machine, by the name of its VirtualMachine, and returns what releases it. The error is that of the
// context.
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

// LockMoves waits for the one lock of all moves, and returns what releases it. It is held from the ruling on a move to the write of the
// claim, so that a limit of concurrent moves counts each move that was admitted before. A caller already holds the lock of a machine, and
// must not wait for the lock of another one while holding it. The error is that of the context.
func (l *Locks) LockMoves(ctx context.Context) (release func(), err error) {
	return l.Lock(ctx, types.NamespacedName{}) // the name of no machine
}

// idle reports whether nobody has a lock, or waits for one.
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

// leave forgets a lock that nobody holds or waits for: machines come and go.
func (l *Locks) leave(machine types.NamespacedName, q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		delete(l.queues, machine)
	}
}
