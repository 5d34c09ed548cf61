package engine

import (
	"slices"

	"k8s.io/utils/lru"
)

// Most requests without results are like an earlier one: the same in all that the rules read, with the same facts. Such a request
// is not evaluated again. Denials, warnings and errors are never cached, nor decisions that depend on the time or on a fact that
// was read live.

const (
	// mostCached limits the requests in a cache.
	mostCached = 2048
	// longestKey and mostFacts limit an entry, in bytes and in objects.
	longestKey, mostFacts = 2048, 64
)

// decisionCache has requests without results: it maps the part of the request that the rules read to the facts.
type decisionCache struct{ *lru.Cache }

func newDecisionCache() decisionCache { return decisionCache{lru.New(mostCached)} }

// has reports whether the cache has the request with these facts.
func (c decisionCache) has(key []byte, facts []Value) bool {
	known, ok := c.Get(string(key))
	return ok && slices.EqualFunc(known.([]Value), facts, sameDocument)
}

// put adds a request without results.
func (c decisionCache) put(key []byte, facts []Value) { c.Add(string(key), facts) }

// cacheKey returns the key of a decision; nil if it is not cached.
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

// sameDocument reports whether two documents are known to be equal. Text is compared by identity, lists by their elements, and terms by
// value.
func sameDocument(a, b Value) bool {
	switch x := a.source().(type) {
	case *jsonText:
		return a.from == b.from
	case *inTerms:
		y, ok := b.source().(*inTerms)
		return ok && x.whole().Equal(y.whole())
	}
	return a.source().kind() == '[' && b.source().kind() == '[' && slices.EqualFunc(a.Elements(), b.Elements(), sameDocument)
}
