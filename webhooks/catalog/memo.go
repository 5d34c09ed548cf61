package catalog

// memo caches results until the end of the next build: entries that a build did not use are dropped.
type memo[K comparable, V any] struct{ last, now map[K]V }

func (m *memo[K, V]) get(key K) (V, bool) {
	v, ok := m.now[key]
	if !ok {
		if v, ok = m.last[key]; ok {
			m.put(key, v)
		}
	}
	return v, ok
}

func (m *memo[K, V]) put(key K, v V) {
	if m.now == nil {
		m.now = map[K]V{}
	}
	m.now[key] = v
}

func (m *memo[K, V]) turn() { m.last, m.now = m.now, nil }
