package engine

import (
	"slices"
	"sync"
)

// Most requests that a policy has nothing to say about are like one that it had nothing to say about a moment ago: the same in
// all that its rules read, with the same facts. Such a request is not evaluated again. Denials and warnings are never
// remembered, nor errors, nor what depends on the time or on a fact that was read live.

const (
	// remembered is how many requests each of the two halves of a memory holds.
	remembered = 1024
	// longestKey and mostFacts bound what is kept for one of them, in bytes and in objects.
	longestKey, mostFacts = 2048, 64
)

// memory is what a policy was silent about: by the part of the request that its rules read, the facts that there were.
type memory struct {
	mu            sync.Mutex
	recent, older map[string][]Value
}

// has tells whether the policy was silent about this.
func (m *memory) has(key []byte, facts []Value) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.recent[string(key)]
	if !ok {
		if known, ok = m.older[string(key)]; ok {
			m.keep(string(key), known)
		}
	}
	return ok && slices.EqualFunc(known, facts, same)
}

// put has it that the policy was silent about this.
func (m *memory) put(key []byte, facts []Value) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(string(key), facts)
}

func (m *memory) keep(key string, facts []Value) {
	if len(m.recent) >= remembered {
		m.older, m.recent = m.recent, nil
	}
	if m.recent == nil {
		m.recent = make(map[string][]Value, remembered)
	}
	m.recent[key] = facts
}

// memorable gives what a decision is remembered by; nil if it is not.
func (p *Policy) memorable(e endpoint, in Input, facts map[string]Fact) (key []byte, values []Value) {
	request, isText := in.Request.from.(*unread)
	if p.silence == nil || e != admit || !isText || !in.VerdictOnly && p.outcome != nil {
		return nil, nil
	}
	objects := 0
	for _, name := range p.facts {
		f := facts[name]
		if f.Query != nil && f.Answer.Live {
			return nil, nil
		}
		objects += f.Answer.Value.length()
		values = append(values, f.Answer.Value)
	}
	if key = p.silence.key(nil, request); len(key) > longestKey || objects > mostFacts {
		return nil, nil
	}
	return key, values
}
