// Package certs keeps the certificate that the webhooks are served with, and what the API server needs to trust it.
//
// In mode self-signed ([SelfSigned]) one Secret holds a certificate authority and a serving certificate. The replica that
// leads makes and renews them and writes the authority into the caBundle of the webhook configurations; every replica reads the
// Secret through the API and serves what is in it, without a restart.
//
// # The order of a rotation
//
// The API server must trust what any replica serves, at any moment. So an authority is replaced in steps, each of which
// leaves a state that the next leader can go on from:
//
//  1. The Secret gets the new authority, beside the old one, which has no key any more. The serving certificate stays.
//  2. The webhook configurations get both.
//  3. When they have had both for some time ([Options.Settle]), so that every API server knows, the Secret gets a serving
//     certificate from the new authority. Each replica takes it and reports that.
//  4. When every live replica has reported it, for as long, the old authority is taken out of the Secret.
//  5. The webhook configurations follow.
//
// Nothing of this is remembered but in the Secret: what comes next is told from the Secret, the webhook configurations and
// the reports alone. Two rules hold beside the order:
//
//   - An authority that the webhook configurations trust is taken away from them only when every live replica has reported
//     that it serves what is in the Secret, whatever became of the Secret meanwhile.
//   - A replica that serves a valid certificate changes to another only when the webhook configurations trust that one.
//
// # Who may write
//
// Two replicas may believe for a moment that they lead. Every write therefore names the resourceVersion that it was worked out
// from, and the webhook configurations are read before the Secret is: whoever works with an old Secret has old configurations
// too, and is refused.
package certs
