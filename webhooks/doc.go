// Package webhooks tests the rooms of admission together. Calls go one way:
//
//   - server reads an AdmissionReview from HTTP, within limits, and writes the response.
//   - decision makes a Decision from a Question: it evaluates every policy that matches, applies an override, and renders the response.
//     No rule is written there: policies decide, and say what happens if they fail.
//   - record writes decisions as lines of JSON, and counts them.
//   - events writes Kubernetes events about denials and overrides.
package webhooks
