// Package offline says what a cluster with Sallyport would answer to a request, without a cluster.
//
// A request takes the way that it takes through the API server: it is decoded and pruned, the mutating webhook changes it,
// defaults, schema and CEL of our definitions are applied, the validating webhook judges it. The steps are the API server's
// own packages where it has them, the gate and the facts are those that serve the webhooks. What the policies ask for is
// answered from a World, which is everything there is.
package offline
