// Command manifests prints what KubeVirt's operator would install for virt-api and virt-controller, as a JSON list: definitions, roles,
// certificates, webhooks, APIServices, and the KubeVirt object with the configuration.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

const namespace = "kubevirt"

// port is where virt-api listens.
var port int32 = 8443

func main() {
	if err := print(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func print() error {
	var items []any
	for _, definition := range []func() (*extv1.CustomResourceDefinition, error){
		components.NewKubeVirtCrd, components.NewVirtualMachineInstanceCrd, components.NewPresetCrd, components.NewReplicaSetCrd,
		components.NewVirtualMachineCrd, components.NewVirtualMachineInstanceMigrationCrd, components.NewVirtualMachineSnapshotCrd,
		components.NewVirtualMachineSnapshotContentCrd, components.NewVirtualMachineRestoreCrd, components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachineClusterInstancetypeCrd, components.NewVirtualMachinePoolCrd, components.NewMigrationPolicyCrd,
		components.NewVirtualMachinePreferenceCrd, components.NewVirtualMachineClusterPreferenceCrd, components.NewVirtualMachineExportCrd,
		components.NewVirtualMachineCloneCrd,
	} {
		crd, err := definition()
		if err != nil {
			return err
		}
		items = append(items, crd)
	}
	items = append(items, components.NewKubeVirtPriorityClassCR())
	for _, group := range [][]any{
		all(rbac.GetAllCluster()), all(rbac.GetAllApiServer(namespace)), all(rbac.GetAllController(namespace)), all(rbac.GetAllHandler(namespace)),
	} {
		items = append(items, group...)
	}
	ca, err := certificates(&items)
	if err != nil {
		return err
	}
	for _, service := range components.NewVirtAPIAPIServices(namespace) {
		service.Spec.CABundle, service.Spec.Service.Port = ca, &port
		items = append(items, service)
	}
	validating := components.NewVirtAPIValidatingWebhookConfiguration(namespace)
	for i := range validating.Webhooks {
		at(&validating.Webhooks[i].ClientConfig, ca)
	}
	validating.TypeMeta = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"}
	mutating := components.NewVirtAPIMutatingWebhookConfiguration(namespace)
	for i := range mutating.Webhooks {
		at(&mutating.Webhooks[i].ClientConfig, ca)
	}
	mutating.TypeMeta = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"}
	kubevirt := &virtv1.KubeVirt{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "KubeVirt"}}
	kubevirt.Namespace, kubevirt.Name = namespace, "kubevirt"
	kubevirt.Spec.Configuration.DeveloperConfiguration = &virtv1.DeveloperConfiguration{UseEmulation: true}
	items = append(items, validating, mutating, kubevirt)
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func at(config *admissionv1.WebhookClientConfig, ca []byte) {
	config.Service.Port, config.CABundle = &port, ca
}

// certificates appends the certificates of KubeVirt's components, and returns their authority.
func certificates(items *[]any) ([]byte, error) {
	valid := &metav1.Duration{Duration: 24 * time.Hour}
	bundles := map[string]string{}
	authorities := components.NewCACertSecrets(namespace)
	for _, secret := range authorities {
		if err := components.PopulateSecretWithCertificate(secret, nil, valid); err != nil {
			return nil, err
		}
		bundles[secret.Name] = string(secret.Data[corev1.TLSCertKey])
		*items = append(*items, secret)
	}
	ca, err := components.LoadCertificates(authorities[0])
	if err != nil {
		return nil, err
	}
	for _, secret := range components.NewCertSecrets(namespace, namespace) {
		if err := components.PopulateSecretWithCertificate(secret, ca, valid); err != nil {
			return nil, err
		}
		*items = append(*items, secret)
	}
	for _, bundle := range components.NewCAConfigMaps(namespace) {
		bundle.Data = map[string]string{components.CABundleKey: bundles[bundle.Name]}
		*items = append(*items, bundle)
	}
	return []byte(bundles[components.KubeVirtCASecretName]), nil
}

func all[T any](objects []T) (items []any) {
	for _, o := range objects {
		items = append(items, o)
	}
	return items
}
