package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Admitted is the answer to a request that nobody refused. That to one that was refused is what the user reads.
const Admitted = "(admitted)"

// Creation is what the API server asks when somebody creates an object, as a dry run.
func Creation(o *unstructured.Unstructured, user string) (*admissionv1.AdmissionReview, error) {
	raw, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	gvk, gvr, dry := metav1.GroupVersionKind(o.GroupVersionKind()), metav1.GroupVersionResource(plural), true
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "creation", Kind: gvk, Resource: gvr, RequestKind: &gvk, RequestResource: &gvr,
			Namespace: o.GetNamespace(), Name: o.GetName(), Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: raw}, DryRun: &dry,
		},
	}, nil
}

// Answered is the answer in the words of a load: Admitted, or what the user reads.
func Answered(r *admissionv1.AdmissionResponse) string {
	switch {
	case r.Allowed:
		return Admitted
	case r.Result == nil:
		return ""
	}
	return r.Result.Message
}

// Ask has one pod decide, past the API server.
func (k *Kubelet) Ask(ctx context.Context, pod string, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionResponse, error) {
	manager, err := k.Manager(pod)
	if err != nil {
		return nil, err
	}
	roots, err := k.s.Roots(ctx)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: fmt.Sprintf("%s.%s.svc", Service, Namespace), MinVersion: tls.VersionTLS12,
	}}}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+manager.Webhooks()+"/validate", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil || answer.Response == nil {
		return nil, fmt.Errorf("pod %s answered %s without a review: %w", pod, response.Status, err)
	}
	return answer.Response, nil
}
