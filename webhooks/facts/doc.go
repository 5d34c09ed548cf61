// Package facts answers the queries of policies beyond the request: from informer caches by index, or live from the API server.
//
// A cached answer may be stale; the engine therefore confirms a denial that is based on one. Live reads have a client of their
// own, so that they and the reconcilers do not wait for each other. A failed read is an error, never an empty answer.
package facts
