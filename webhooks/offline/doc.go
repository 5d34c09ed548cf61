// Package offline computes the response of a cluster with Sallyport to a request, without a cluster.
//
// A request passes the steps of the API server: it is decoded and pruned, the mutating webhook changes it, defaults, schema and CEL
// of Sallyport's definitions are applied, the validating webhook is called. The steps use the API server's own packages if
// possible; the gate and the facts are those of the webhooks. Queries are answered from a World, which has all objects.
package offline
