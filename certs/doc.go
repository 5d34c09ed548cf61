// Package certs keeps the certificate that the webhooks are served with, and what the API server needs to trust it.
//
// A [Mode] says where the next certificate comes from: from a CA of Sallyport's own, from cert-manager, or from a Secret that somebody else
// maintains. All else is the same in every mode, so a change of the mode is a rotation:
//
//  1. The Secret of a source gets another certificate. Nothing else changes yet.
//  2. The leader adds the CA of that certificate to the caBundle of the webhook configurations, beside those that are trusted already.
//  3. A replica that has seen it trusted for some time ([Options.Settle]), so that every API server knows, serves it and reports that.
//  4. When every live replica has reported it for as long, the leader removes the other authorities from the webhook configurations.
//
// The state of a rotation is in the Secrets, the webhook configurations and the reports of the replicas alone, so another leader can
// continue at any point. Two rules hold in addition:
//
//   - The leader removes an authority from the webhook configurations only when every live replica has reported that it serves the
//     certificate of the preferred source.
//   - A replica that serves a certificate that is valid and trusted replaces it only by another one for which the same is true. A replica
//     that serves none takes any.
//
// # Who may write
//
// Two replicas may both believe that they lead. Every write therefore names the resourceVersion that it was derived from, and a
// leader reads the webhook configurations before the Secrets: if its Secret is outdated, its configurations are, too, and the API
// server rejects the write.
package certs
