// Package webhooks answers admission reviews with the verdicts of policies.
//
// A [Question] says what is asked: at which endpoint, about which [Review], of which policies, at what time. [Gate.Decide] puts it to
// every policy that the request meets and gives a [Decision], which is a value: a response, a ruling or a record is made from it, and a
// [Recorder] keeps it so that it can be replayed. No verdict is made here: whether a request passes is what the policies say, or what
// they want to happen when they cannot decide.
//
// Calls lead one way: from who asks (handler, answer, arbitrate, admits, audit) to the gate, which fills in the decision (gate, override,
// patch, secrets, reads), and from the decision to what is made of it (response, wayout, record, omitted, metrics, events).
package webhooks
