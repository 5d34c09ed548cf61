// Package facts answers what policies ask beyond the request: from informer caches by index, or live from the API server.
//
// A cached answer may be a moment old; the engine therefore confirms a denial that rests on one. A live answer is read with
// a client of its own, so that questions of policies and the work of reconcilers never wait for each other.
// What cannot be read is an error and never an empty answer.
package facts
