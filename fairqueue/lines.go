// Package fairqueue shares out what is scarce: places, and the workers of controllers. Who asks names whose share it is,
// such as a namespace. Those who wait in one name form a line, and the lines take turns: a long line costs others one turn at most.
package fairqueue

import "slices"

// lines are those who wait, by whose share they wait for. The zero value is empty. It is not safe for concurrent use.
type lines[T comparable] struct {
	of    map[string][]T
	turns []string // those with a line, the next one first
	total int
}

func (l *lines[T]) push(whose string, item T) {
	if l.of == nil {
		l.of = map[string][]T{}
	}
	if len(l.of[whose]) == 0 {
		l.turns = append(l.turns, whose)
	}
	l.of[whose] = append(l.of[whose], item)
	l.total++
}

// pop takes the first of the line whose turn it is. There must be one.
func (l *lines[T]) pop() T {
	whose := l.turns[0]
	item := l.of[whose][0]
	l.turns = l.turns[1:]
	if l.of[whose] = l.of[whose][1:]; len(l.of[whose]) == 0 {
		delete(l.of, whose)
	} else {
		l.turns = append(l.turns, whose)
	}
	l.total--
	return item
}

// remove takes somebody out of a line, wherever in it, and tells whether it was in there.
func (l *lines[T]) remove(whose string, item T) bool {
	i := slices.Index(l.of[whose], item)
	if i < 0 {
		return false
	}
	if l.of[whose] = slices.Delete(l.of[whose], i, i+1); len(l.of[whose]) == 0 {
		delete(l.of, whose)
		l.turns = slices.DeleteFunc(l.turns, func(other string) bool { return other == whose })
	}
	l.total--
	return true
}
