package engine

import (
	"slices"

	"k8s.io/utils/lru"
)

// Most requests that a policy has nothing to say about are like one that it had nothing to say about a moment ago: the same in
// all that its rules read, with the same facts. Such a request is not evaluated again. Denials and warnings are never
// cached, nor errors, nor what depends on the time or on a fact that was read live.

const (
	// mostCached is how many requests a cache holds.
	mostCached = 2048
	// longestKey and mostFacts bound what is kept for one of them, in bytes and in objects.
	longestKey, mostFacts = 2048, 64
)

// decisionCache is what a policy was silent about: by the part of the request that its rules read, the facts that there were.
type decisionCache struct{ *lru.Cache }

func newDecisionCache() decisionCache { return decisionCache{lru.New(mostCached)} }

// has tells whether the policy was silent about this.
func (c decisionCache) has(key []byte, facts []Value) bool {
	known, ok := c.Get(string(key))
	return ok && slices.EqualFunc(known.([]Value), facts, same)
}

// put has it that the policy was silent about this.
func (c decisionCache) put(key []byte, facts []Value) { c.Add(string(key), facts) }

// cacheKey gives what a decision is found by; nil if it is not kept.
func (a *accelerated) cacheKey(e endpoint, in Input, facts map[string]Fact) (key []byte, values []Value) {
	request, isText := in.Request.from.(*jsonText)
	if a.decides == nil || e != admit || !isText || !in.VerdictOnly && a.outcome != nil {
		return nil, nil
	}
	objects := 0
	for _, name := range a.facts {
		f := facts[name]
		if f.Query != nil && f.Answer.Live {
			return nil, nil
		}
		objects += max(1, len(f.Answer.Value.Elements()))
		values = append(values, f.Answer.Value)
	}
	if key = a.decides.key(nil, request); len(key) > longestKey || objects > mostFacts {
		return nil, nil
	}
	return key, values
}

// same tells whether two documents are known to be the same. Text is compared by which it is, and lists one by one; what is in terms is
// compared by what it is.
func same(a, b Value) bool {
	switch x := a.source().(type) {
	case *jsonText:
		return a.from == b.from
	case *inTerms:
		y, ok := b.source().(*inTerms)
		return ok && x.whole().Equal(y.whole())
	}
	return a.source().kind() == '[' && b.source().kind() == '[' && slices.EqualFunc(a.Elements(), b.Elements(), same)
}
