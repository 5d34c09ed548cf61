// Package webhooks answers admission reviews with the verdicts of policies.
//
// A review goes through four units: [Decode] reads it strictly, a [Gate] asks every policy that it meets, respond turns what
// they say into one AdmissionResponse, and a [Recorder] keeps the decision so that it can be replayed. No verdict is made
// here: whether a request passes is what the policies say, or what they want to happen when they cannot decide.
package webhooks
