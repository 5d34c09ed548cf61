// Package v1alpha1 is the API of Sallyport: virtual machines, the operations on
// them, and the Rego policies that decide about both.
//
// The package holds types, their schema markers and the condition types and
// reasons that statuses carry. It knows nothing of the webhooks and reconcilers
// that work with them, so that other projects can import it on its own.
//
// +kubebuilder:object:generate=true
// +groupName=sallyport.dev
package v1alpha1
