package webhooks

import (
	"encoding/json"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/webhooks/server"
)

// An object of ours that Go does not decode is denied with the field, whatever the schema says, before any policy is asked; one that was
// stored like that may be changed.
func TestHandlerDeniesWhatGoDoesNotDecode(t *testing.T) {
	const machine = `{"metadata": {"name": "web-1"%s}, "spec": {"cpu": 2, "runtime": {"vsphere": {"clone": {"disks": [{"size": "1Gi"}, {"size": %s}]}}}}, "status": {"powerIntent": {"at": %s}}}`
	const at, fields = `"2026-05-04T03:02:01.000000Z"`, `, "managedFields": [{"manager": "a", "time": %s, "fieldsV1": {"f:spec": {"f:cpu": {}}}}]`
	const disk, intent = "spec.runtime.vsphere.clone.disks[1].size", "status.powerIntent.at"
	good := fmt.Sprintf(machine, fmt.Sprintf(fields, `"2026-05-04T03:02:01Z"`), `"1.5Gi"`, at)
	for name, tc := range map[string]struct{ object, old, field string }{
		"all is well":                       {good, "", ""},
		"nothing is there":                  {`{"metadata": {"name": "web-1", "creationTimestamp": null, "labels": null}, "spec": null}`, "", ""},
		"controller-runtime#1032":           {fmt.Sprintf(machine, "", `"1e1.5"`, at), "", disk},
		"argo-workflows#3677":               {fmt.Sprintf(machine, "", `""`, at), "", disk},
		"an exponent that takes minutes":    {fmt.Sprintf(machine, "", `"1e-2000000000"`, at), "", disk},
		"a number with such an exponent":    {fmt.Sprintf(machine, "", `"1E+99999"`, at), "", disk},
		"more digits than any quantity has": {fmt.Sprintf(machine, "", `"99999999999999999999999999999"`, at), "", disk},
		"a list":                            {fmt.Sprintf(machine, "", `"1Gi"`, `[]`), "", intent},
		"a time without microseconds":       {fmt.Sprintf(machine, "", `"1Gi"`, `"2026-05-04T03:02:01Z"`), "", intent},
		"a time in small letters":           {fmt.Sprintf(machine, fmt.Sprintf(fields, `"2026-05-04t03:02:01z"`), `"1Gi"`, at), "", "metadata.managedFields[0].time"},
		"an update to something bad":        {fmt.Sprintf(machine, "", `"1e.5"`, at), good, disk},
		"an update of something bad":        {fmt.Sprintf(machine, `, "labels": {"a": "b"}`, `"1e.5"`, at), fmt.Sprintf(machine, "", `"1e.5"`, at), ""},
	} {
		t.Run(name, func(t *testing.T) {
			operation, old := "CREATE", ""
			if tc.old != "" {
				operation, old = "UPDATE", `, "oldObject": `+tc.old
			}
			body := fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r-1", "operation": %q,
				"kind": {"group": "sallyport.dev", "version": "v1alpha1", "kind": "VirtualMachine"}, "resource": {"group": "sallyport.dev", "version": "v1alpha1", "resource": "virtualmachines"},
				"name": "web-1", "namespace": "ns", "userInfo": {"username": "ann"}, "object": %s%s}}`, operation, tc.object, old)
			f := newFixture(t, world{}, policyOf("p", denies("red", "TooRed", 403)))
			var answer admissionv1.AdmissionReview
			if err := json.Unmarshal(serve(f, server.ValidatePath, body).Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			is := answer.Response
			if is.Allowed != (tc.field == "") {
				t.Fatalf("allowed %t: %+v", is.Allowed, is.Result)
			}
			if tc.field != "" && (is.UID != "r-1" || is.Result.Code != 403 || is.Result.Details.Causes[0].Field != tc.field) {
				t.Errorf("got %+v, want one that names %s", is.Result, tc.field)
			}
		})
	}
}
